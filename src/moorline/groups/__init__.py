"""Room: groups. Kept free for shared groups: Leaders and Borrowers on real nodes."""
