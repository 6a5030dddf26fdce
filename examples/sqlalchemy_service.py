"""
A service on SQLAlchemy: it asks for refunds in its own transactions, and hears how they ended.

    DATABASE_URL=postgresql+psycopg://shop@/app python examples/sqlalchemy_service.py
"""

import os
import time
from itertools import islice

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from outbox import Intent, Outbox, State

# Who asks. In a service with many tenants: made per request, from whoever is logged in (examples/fastapi_service.py).
box = Outbox(tenant_id="acme", principal_id="billing")


class Base(DeclarativeBase):
    """The service's own tables."""


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    cents: Mapped[int]
    state: Mapped[str] = mapped_column(default="paid")


class Place(Base):
    """Where this service is in the feed. Beside its own rows, so that both change together."""

    __tablename__ = "feed_place"
    reader: Mapped[str] = mapped_column(primary_key=True)
    cursor: Mapped[str | None]


def refund(session: Session, order: Order) -> None:
    """Ask for a refund. Both rows are committed, or neither is; `put` never commits."""
    order.state = "refund asked for"
    box.put(
        session,
        Intent(
            tool="payment.refund",
            operation_id=f"order-{order.id}/refund",  # stable: to ask again is the same operation
            resource=f"order-{order.id}",
            arguments={"cents": order.cents},
        ),
    )


def hear(session: Session, at_most: int = 100) -> None:
    """
    Change our rows to what we are told, and our place in the feed in the same transaction.

    Killed before its commit, this has not happened; after it, it is done. So each end is handled once.
    """
    # The lock lets one process at a time read on, where several run.
    place = session.get_one(Place, "orders", with_for_update=True)
    feed = box.feed(session, after=place.cursor)
    for ended in islice(feed, at_most):
        number, _, what = ended.operation_id.removeprefix("order-").partition("/")
        if what == "refund":
            order = session.get_one(Order, int(number))
            order.state = "refunded" if ended.state is State.SUCCEEDED else f"not refunded: {ended.cause}"
    place.cursor = feed.cursor


def main() -> None:
    engine = create_engine(os.environ["DATABASE_URL"])
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        if session.get(Place, "orders") is None:
            session.add(Place(reader="orders"))
        order = Order(cents=1999)
        session.add(order)
        session.flush()
        refund(session, order)
        number = order.id

    while True:
        with Session(engine) as session, session.begin():
            hear(session)
            order = session.get_one(Order, number)
            if order.state != "refund asked for":
                print(f"order {order.id}: {order.state}")
                break
        time.sleep(0.2)
    engine.dispose()


if __name__ == "__main__":
    main()
