"""Room: sessions. What clients read: sessions, their subscriptions, and what is delivered to them."""
