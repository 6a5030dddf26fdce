"""Who acts, as the operating system knows it: recorded with every act of a person, and no flag can change it."""

import os
import pwd
import socket

from outbox.outcome import storable

NAME_BYTES_MAX = 200


def os_user() -> str:
    """
    Return `name@host` of the real user of this process; the number stands for a user without a name.

    The real one, not the effective one: a program that was made setuid still says who called it. Not the environment
    either, which anybody can set.
    """
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return storable(f"{name}@{socket.gethostname()}", NAME_BYTES_MAX)
