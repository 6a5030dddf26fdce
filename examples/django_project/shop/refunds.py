"""Asking for refunds, and hearing how they ended."""

from itertools import islice

from django.db import transaction

from outbox import Intent, Outbox, State
from outbox.django import feed, put
from shop.models import Order, Place

# In a view: made from request.user.
box = Outbox(tenant_id="acme", principal_id="billing")


def refund(cents: int) -> Order:
    """Make an order and ask for its refund. `on_commit` is not needed: the intent commits with the order."""
    with transaction.atomic():
        order = Order.objects.create(cents=cents, state="refund asked for")
        intent = Intent(
            tool="payment.refund",
            operation_id=f"django-order-{order.pk}",
            resource=f"order-{order.pk}",
            arguments={"cents": cents},
        )
        put(box, intent)
    return order


def hear(at_most: int = 100) -> None:
    """Change orders to what is told, and the place in the feed in the same transaction."""
    with transaction.atomic():
        Place.objects.get_or_create(reader="orders")
        place = Place.objects.select_for_update().get(reader="orders")
        ends = feed(box, after=place.cursor)
        for ended in islice(ends, at_most):
            if ended.operation_id.startswith("django-order-"):
                order = Order.objects.get(pk=int(ended.operation_id.removeprefix("django-order-")))
                order.state = "refunded" if ended.state is State.SUCCEEDED else f"not refunded: {ended.cause}"
                order.save()
        place.cursor = ends.cursor
        place.save()
