"""The demo, and the receiver process that judges it and the tests."""
