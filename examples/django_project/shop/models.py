"""What the project owns: orders, and where it is in the feed."""

from django.db import models


class Order(models.Model):
    cents = models.IntegerField()
    state = models.CharField(max_length=100, default="paid")

    def __str__(self) -> str:
        return f"order {self.pk}: {self.state}"


class Place(models.Model):
    """How far the ends of operations have been handled."""

    reader = models.CharField(max_length=50, primary_key=True)
    cursor = models.TextField(null=True)  # noqa: DJ001 - null is the beginning

    def __str__(self) -> str:
        return f"{self.reader} at {self.cursor}"
