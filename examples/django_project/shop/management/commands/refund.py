"""`manage.py refund CENTS`: one order, refunded."""

import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from shop.refunds import hear, refund


class Command(BaseCommand):
    help = "Make an order, ask for its refund, and say how that ended."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("cents", type=int)

    def handle(self, *_args: Any, cents: int, **_options: Any) -> None:
        order = refund(cents)
        while order.state == "refund asked for":
            time.sleep(0.2)
            hear()
            order.refresh_from_db()
        self.stdout.write(str(order))
