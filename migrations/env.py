"""Alembic's entry: runs the migrations on the connection that outbox.migrate hands over."""

from alembic import context

from outbox.migrate import VERSION_TABLE, VERSION_TABLE_SCHEMA


def run() -> None:
    """Run on the given connection, or write SQL text in offline mode."""
    connection = context.config.attributes.get("connection")
    if connection is None:
        context.configure(
            dialect_name="postgresql",
            version_table=VERSION_TABLE,
            version_table_schema=VERSION_TABLE_SCHEMA,
            output_buffer=context.config.output_buffer,
        )
    else:
        context.configure(connection=connection, version_table=VERSION_TABLE, version_table_schema=VERSION_TABLE_SCHEMA)
    with context.begin_transaction():
        context.run_migrations()


run()
