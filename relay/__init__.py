"""
The daemon that delivers: it holds leases on lanes, begins attempts, and records what they said.

leases     which lanes this process holds, and for how long
lane       one held lane: what begins, what runs, what was heard
position   where in a lane the holder is
begun      a row whose exposure is committed, and what became of it
attempt    one attempt, from the one to the other
judge      is this what was permitted, and the request that it is bound to?
gate       the last check before the first byte
recorder   answers into the database, in groups
doorbell   being woken instead of polling
loop       all of it together
"""
