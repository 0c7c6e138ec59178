"""``mtp-bench list``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from mtp_bench.cli.app import app, command


class Listing(StrEnum):
    """What ``list`` lists."""

    VARIANTS = "variants"
    PROFILES = "profiles"
    DEVICES = "devices"
    CHECKS = "checks"


@app.command("list")
@command
def list_(what: Annotated[Listing, typer.Argument(help="What to list.")]) -> None:
    """List variants, workload profiles, device profiles or the cases of check."""
    rows = _LISTINGS[what]()
    width = max(16, *(len(name) for name, _ in rows)) if what is Listing.CHECKS else 16
    for name, text in rows:
        print(f"{name:<{width}} {text}".rstrip())


def _list_variants() -> list[tuple[str, str]]:
    from mtp_bench import variants

    return [(name, _about_variant(name)) for name in variants.available_names()]


def _about_variant(name: str) -> str:
    """Title, and version and code path of somebody else's; why it cannot be loaded here, where it cannot."""
    from mtp_bench import variants

    try:
        with warnings.catch_warnings(action="ignore"):  # Megatron's, on import
            variant = variants.load(name)
    except Exception as error:  # a broken installation of one variant hides no other
        why = " ".join(str(error).split()).removeprefix(f"--variant {name}: ")
        return "; ".join(filter(None, [variants.title(name), f"cannot run here: {why}"]))
    return "; ".join(filter(None, [variant.title, variant.version, variant.path, variant.note]))


def _list_profiles() -> list[tuple[str, str]]:
    from mtp_bench import workloads

    loaded = [workloads.load(name) for name in workloads.builtin_names()]
    return [(workload.name, f"{workload.title} ({workload.source})") for workload in loaded]


def _list_devices() -> list[tuple[str, str]]:
    from mtp_bench import profiles

    rows = [("cuda[:N]", "a GPU, measured")]
    for name in profiles.profile_names("devices"):
        keys = profiles.read_toml(profiles.profile_dir("devices") / f"{name}.toml")
        rows.append((f"sim:{name}", f"{keys.get('title', keys.get('name', ''))} (modelled)"))
    return rows


def _list_checks() -> list[tuple[str, str]]:
    """Id, then title, property, ranks and where it was reported."""
    from mtp_bench.conformance import all_cases

    return [
        (
            case.id,
            "; ".join(
                filter(
                    None,
                    [
                        f"{case.title} ({case.property})",
                        f"{case.ranks.count} ranks" if case.ranks else "",
                        ", ".join(map(str, case.references)),
                    ],
                )
            ),
        )
        for case in all_cases()
    ]


_LISTINGS: dict[Listing, Callable[[], list[tuple[str, str]]]] = {
    Listing.VARIANTS: _list_variants,
    Listing.PROFILES: _list_profiles,
    Listing.DEVICES: _list_devices,
    Listing.CHECKS: _list_checks,
}
