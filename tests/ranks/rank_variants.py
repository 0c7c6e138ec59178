"""Losses of a user that leave the other ranks behind."""

import os

from mtp_bench.variants.boundary_roll import boundary_roll


def raises_on_one(**arguments):
    if os.environ["RANK"] == "1":
        raise ValueError("not on this rank")
    return boundary_roll(**arguments)


def ends_one(**arguments):
    if os.environ["RANK"] == "1":
        os._exit(3)
    return boundary_roll(**arguments)


def reads_on_one(**arguments):
    """Two host reads on the second rank, none on the first."""
    if os.environ["RANK"] == "1":
        arguments["loss_mask"].sum().item()
        arguments["loss_mask"].sum().item()
    return boundary_roll(**arguments)
