"""What a run tells the outside while it goes on and when it ends."""
