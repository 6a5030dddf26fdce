"""
The daemon that delivers: it holds leases on lanes, begins attempts, and records what they said.

loop       all of it together, and an end in order
leases     which lanes this process holds, and for how long; `holding` is one acquisition, `share` whose part is whose
lane       one held lane: what begins, what runs, what was heard
claims     what begins: `position` says where in the lane, `rhythm` when to look, `orphans` sweeps lost answers
flight     what runs: attempts that wait for a slot, and those that have one
attempt    one attempt: `begun` is its two ends, `judge` asks whether it is what was permitted, `gate` checks last
recorder   what was heard, into the database in groups; `record` is what of it goes into which column
doorbell   being woken instead of polling
services   the receivers that it serves; `service` is one of them, `breaker` and `circuit` leave it alone for a while
"""
