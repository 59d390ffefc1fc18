-- A takeover: whatever an older subscriber asks for from now on is refused.
update moorline.service set epoch = epoch + 1 where number = $1 returning epoch
