"""Calls that lead to an annotated end state, read off the difference to the start. For `scripted:oracle`.

The published milestones will not do: for 13 of 50 items they end somewhere else (see `audit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spade_evals.grade.calls import Call
from spade_evals.suites.acebench.audit import renamed
from spade_evals.suites.acebench.check import State
from spade_evals.suites.acebench.food import ACCOUNTS
from spade_evals.suites.acebench.phone import PHONE_IDS
from spade_evals.suites.acebench.travel import USERS
from spade_evals.suites.acebench.world import World

OWNERS = {number: name for name, number in PHONE_IDS.items()}


def plan(classes: Sequence[str], config: dict[str, Any], annotated: State) -> list[Call]:
    """The calls, in an order in which they work. Of an end state that cannot be reached, what can be."""
    start = {name: kept for part in World(classes, config).state() for name, kept in part.items()}
    wanted = {name: kept for part in renamed(annotated) for name, kept in part.items()}
    calls: list[Call] = []
    steps = {
        "BaseApi": _device,
        "FoodPlatform": _food,
        "MessageApi": _messages,
        "ReminderApi": _reminders,
        "Travel": _travel,
    }
    for name, step in steps.items():
        if name in wanted and name in start:
            calls += step(start[name], wanted[name])
    return calls


def _call(name: str, **kwargs: Any) -> Call:
    return Call(name, (), kwargs)


def _device(start: dict[str, Any], wanted: dict[str, Any]) -> list[Call]:
    login = [_call("login_device")] if wanted["logged_in"] and not start["logged_in"] else []
    return login + ([_call("turn_on_wifi")] if wanted["wifi"] and not start["wifi"] else [])


def _messages(start: dict[str, Any], wanted: dict[str, Any]) -> list[Call]:
    before, after = start["inbox"], wanted["inbox"]
    calls = [_call("delete_message", message_id=int(number)) for number in before if number not in after]
    return calls + [
        _call(
            "send_message",
            sender_name=OWNERS[sent["sender_id"]],
            receiver_name=OWNERS[sent["receiver_id"]],
            message=sent["message"],
        )
        for number, sent in after.items()
        if number not in before
    ]


def _reminders(start: dict[str, Any], wanted: dict[str, Any]) -> list[Call]:
    before = start["reminder_list"]
    return [
        _call("add_reminder", **{key: new[key] for key in ("title", "description", "time")})
        for number, new in wanted["reminder_list"].items()
        if before.get(number) != new
    ]


def _food(start: dict[str, Any], wanted: dict[str, Any]) -> list[Call]:
    calls = [
        _call("login_food_platform", username=name, password=ACCOUNTS[name][0])
        for name in wanted["logged_in_users"]
    ]
    return calls + [
        _call(
            "add_food_delivery_order",
            username=order["user_name"],
            merchant_name=order["merchant_name"],
            items=[{key: line[key] for key in ("product", "quantity")} for line in order["items"]],
        )
        for order in wanted["orders"]
    ]


def _travel(start: dict[str, Any], wanted: dict[str, Any]) -> list[Call]:
    before = {booking["reservation_id"]: booking for booking in start["reservations"]}
    calls = []
    for booking in wanted["reservations"]:
        old = before.get(booking["reservation_id"])
        if old is None:
            calls.append(_reserve(booking))
        elif old != booking:
            calls.append(_modify(old, booking))
    return calls


def _reserve(booking: dict[str, Any]) -> Call:
    user = booking["user_id"]
    kept = {key: booking[key] for key in ("flight_no", "cabin", "payment_method")}
    return _call(
        "reserve_flight", user_id=user, password=USERS[user][1], **kept, baggage_count=booking["baggage"]
    )


def _modify(old: dict[str, Any], new: dict[str, Any]) -> Call:
    more: dict[str, Any] = {f"new_{key}": new[key] for key in ("flight_no", "cabin") if new[key] != old[key]}
    if new["baggage"] != old["baggage"]:
        more["add_baggage"] = new["baggage"] - old["baggage"]
    return _call("modify_flight", user_id=new["user_id"], reservation_id=new["reservation_id"], **more)
