"""
The daemon that settles what is unknown: it asks receivers what happened, and decides on evidence.

It has no code path that causes an effect: it opens receivers for reading only, and sends no statement that begins an
attempt.
"""
