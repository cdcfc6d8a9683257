"""The simulated phone and airline desk, against recorded runs of the published ones; the two scores."""

from __future__ import annotations

from typing import Any

import pytest
from ace_data import FOLDER, agent_items, phone, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from qa_data import needs

from spade_evals.grade.calls import Call
from spade_evals.suites.acebench import audit, check
from spade_evals.suites.acebench.oracle import plan
from spade_evals.suites.acebench.prompts import NUDGE
from spade_evals.suites.acebench.reading import bracketed_calls, calls_in
from spade_evals.suites.acebench.travel import Travel
from spade_evals.suites.acebench.world import CLASSES, NOT_FORMATTED, World, answers_of, answers_or_letters

STEP, TURN = "agent_multi_step", "agent_multi_turn"


def alternatives(annotation: dict[str, Any]) -> list[list[str]]:
    """The published lists of milestones."""
    published = annotation["mile_stone"]
    return published if isinstance(published[0], list) else [published]


def reached(item: dict[str, Any], stones: list[str]) -> check.State:
    """The end state after executing texts."""
    world = World(item["involved_classes"], item["initial_config"])
    for text in stones:
        answers_of(world, calls_in(text).calls)
    return world.state()


@needs("acebench_en")
def test_start_values_are_the_published_ones() -> None:
    import json

    published = json.loads((FOLDER / "initial_state.json").read_text(encoding="utf-8"))
    world = World(CLASSES, {})
    for part in world.state():
        for name, kept in part.items():
            for key, value in kept.items():
                assert value == published[name][key], (name, key)
    assert world.parts["Travel"].flights == published["Travel"]["flights"]
    menus = {
        merchant: world.call(Call("get_products", (), {"merchant_name": merchant}))
        for merchant in published["FoodPlatform"]["merchant_list"]
    }
    assert menus == {name: m["menu"] for name, m in published["FoodPlatform"]["merchant_list"].items()}


@needs("acebench_en")
def test_every_recorded_call_has_the_recorded_result_and_end_state() -> None:
    items = agent_items()
    recorded = rows("milestone_replay.jsonl")
    for record in recorded:
        item, annotation = items[record["id"]]
        world = World(item["involved_classes"], item["initial_config"])
        run = answers_of if record["id"].startswith(STEP) else answers_or_letters
        for step in record["steps"]:
            found = calls_in(step["call"])
            got = run(world, found.calls) if found.calls else NUDGE
            assert got == step.get("result", NUDGE), step  # a syntax error has no result
        assert world.state() == record["end_state"]
        right = not check.differences(annotation["ground_truth"], world.state(), strict=False)
        assert right is record["matches_ground_truth"], record["id"]
    assert sum(len(r["steps"]) for r in recorded) == 270


@needs("acebench_en")
@pytest.mark.parametrize(
    ("category", "change", "expected"),
    [
        (STEP, str, 7),
        (TURN, str, 21),
        (STEP, audit.with_apostrophes, 9),
        (TURN, audit.with_apostrophes, 29),
        (STEP, audit.mended, 12),
        (TURN, audit.mended, 29),
    ],
)
def test_replaying_the_published_milestones(category: str, change: Any, expected: int) -> None:
    right = 0
    for name, (item, annotation) in agent_items().items():
        if name.startswith(category):
            ends = [reached(item, list(map(change, stones))) for stones in alternatives(annotation)]
            right += any(not check.differences(annotation["ground_truth"], end, False) for end in ends)
    assert right == expected


@needs("acebench_en")
def test_the_audit_explains_every_item_whose_milestones_or_annotation_fail() -> None:
    for name, (item, annotation) in agent_items().items():
        truth = annotation["ground_truth"]
        ends = [reached(item, list(map(audit.mended, stones))) for stones in alternatives(annotation)]
        replayed = any(not check.differences(truth, end, False) for end in ends)
        assert replayed is (name not in audit.MILESTONES), name
        calls = plan(item["involved_classes"], item["initial_config"], truth)
        world = World(item["involved_classes"], item["initial_config"])
        answers_of(world, calls)
        for strict in (False, True):
            wrong = check.differences(truth, world.state(), strict)
            assert not wrong or (strict and name in audit.UNSCORABLE), (name, wrong)
        misspelt = {key for part in truth for key in part} & set(audit.CLASS_NAMES)
        assert set(item["involved_classes"]) == {key for part in audit.renamed(truth) for key in part}
        if misspelt:
            assert check.differences(truth, world.state(), True) == [] or name in audit.UNSCORABLE
    twin, first = next(iter(audit.TWINS.items()))
    assert agent_items()[twin][0]["question"] == agent_items()[first][0]["question"]


@needs("acebench_en")
@pytest.mark.parametrize(
    ("name", "calls", "wrong"),
    [
        (
            "agent_multi_turn_12",
            "[send_message(sender_name='Grace', receiver_name='Frank', "
            "message='The total cost is 68.0 yuan.')]",
            "MessageApi.inbox",
        ),
        (
            "agent_multi_turn_28",
            "[reserve_flight(user_id='user3', password='password789', flight_no='MU1566', "
            "cabin='Business Class', payment_method='bank', baggage_count=4)]",
            "Travel",
        ),
        (
            "agent_multi_step_19",
            "[send_message(sender_name='Isaac', receiver_name='Frank', message='See you tomorrow')]",
            "MessageApi.inbox",
        ),
    ],
)
def test_a_careful_agent_fails_unscorable_items(name: str, calls: str, wrong: str) -> None:
    """What the request says, done to the letter, is not what is annotated."""
    item, annotation = agent_items()[name]
    truth = annotation["ground_truth"]
    [*before, _] = plan(item["involved_classes"], item["initial_config"], truth)
    if name == "agent_multi_step_19":  # after deleting message 5 the box has room
        before = [call for call in before if call.kwargs.get("message_id") != 4]
    world = World(item["involved_classes"], item["initial_config"])
    answers = answers_of(world, [*before, *calls_in(calls).calls])
    assert "uccess" in str(answers[-1]), answers
    assert any(difference.startswith(wrong) for difference in check.differences(truth, world.state(), True))
    assert name in audit.UNSCORABLE


def test_strict_sees_what_official_overlooks() -> None:
    world = World(["BaseApi", "MessageApi", "ReminderApi"], phone())
    truth = world.state()
    answers_of(world, calls_in("[add_reminder(title='a', description='b', time='c')]").calls)
    assert check.differences(truth, world.state(), strict=False) == []
    assert check.differences(truth, world.state(), strict=True) == ["ReminderApi.reminder_list"]
    truth[2] = {"Reminderpi": {"reminder_list": {}}}
    assert check.differences(truth, world.state(), strict=False) == []  # nobody is called that
    assert check.differences(truth, world.state(), strict=True) == ["ReminderApi.reminder_list"]
    assert check.differences(truth, [], strict=False) == ["0 classes instead of 3"]


def test_process_score_goes_on_where_the_last_milestone_was_found() -> None:
    stones = ["[a()]", "[b()]", "[c()]"]
    assert check.process_score(stones, ["[a()]", "[x()]", "[b()]", "[c()]"]) == 1.0
    assert check.process_score(stones, ["[a()]", "[c()]"]) == pytest.approx(
        1 / 3
    )  # c is searched after b only
    assert check.process_score([stones, ["[x()]"]], [" [x()]"]) == 1.0  # the better list counts
    assert check.process_score(stones, []) == 0.0
    [a, b, c] = ([Call(name)] for name in "abc")
    assert check.strict_process_score([[a, b, c]], [a, c]) == pytest.approx(2 / 3)
    assert check.strict_process_score([[a, b], [b, c]], [b, c]) == 1.0


def test_device_messages_food_and_errors_word_for_word() -> None:
    world = World(["BaseApi", "MessageApi", "ReminderApi", "FoodPlatform"], phone(wifi=False))

    def say(text: str) -> Any:
        return answers_of(world, calls_in(text).calls)[0]

    assert say("[send_message(sender_name='Eve', receiver_name='Jack', message='x')]") == {
        "status": False,
        "message": "Wi-Fi is turned off, cannot send messages at this time",
    }
    assert say("[login_food_platform(username='Eve', password='password123')]")["status"] is False
    assert say("[turn_on_wifi()]") == {"status": True, "message": "Wi-Fi has been turned on"}
    assert (
        "capacity is full"
        in say("[send_message(sender_name='Eve', receiver_name='Jack', message='x')]")["message"]
    )
    assert say("[search_messages(user_name='Isaac', keyword='CALL')]")["messages"][0]["id"] == 5
    assert say("[delete_message(message_id=5)]")["status"] is True
    assert say("[delete_message(message_id=5)]")["message"] == "Message ID does not exist"
    assert say("[send_message(sender_name='Eve', receiver_name='Jack', message='x')]")["status"] is True
    assert say("[get_latest_message_id()]") == "Error during execution: 'time'"  # a sent message has none
    assert say("[check_balance(user_name='Jack')]") == 120.0
    order = "[add_food_delivery_order(username='Eve', merchant_name='Heytea', items=[{0}])]"
    tea = "{'product': 'Cheese Milk Tea', 'quantity': %s}"
    assert "not logged in" in say(order.replace("{0}", tea % 1))["message"]
    say("[login_food_platform(username='Eve', password='password123')]")
    assert say("[login_food_platform(username='Eve', password='password123')]")["message"].endswith(
        "already logged in"
    )
    assert "Invalid quantity" in say(order.replace("{0}", tea % 0))["message"]
    assert say(order.replace("{0}", tea % 100))["message"] == "Insufficient balance to place the order"
    assert say(order.replace("{0}", "1")).startswith("Error during execution: ")
    assert world.state()[3]["FoodPlatform"]["orders"] == []
    assert say("[search_reminders(keyword='a')]") == (
        "Error during execution: there is no function 'search_reminders'"
    )
    assert say("[view_reminder_by_title(title='To-do list')]")["reminder"]["reminder_id"] == 1003


def test_flights_are_booked_changed_and_cancelled_as_published() -> None:
    desk = Travel()
    assert desk.get_flight_details("Nowhere") == "There are no direct flights that meet the criteria."
    found = desk.find_transfer_flights("Beijing", "Nanjing", "Shenzhen")
    assert [(f["first_leg"]["flight_no"], f["second_leg"]["depart_time"]) for f in found] == [
        ("MU3561", "2024-07-18 12:30:00")
    ]
    booked = desk.reserve_flight("user3", "password789", "MU1566", "Economy Class", "bank", 4)
    assert "Total cost: 1550 yuan" in booked
    assert desk.users["user3"]["bank_balance"] == 3450.0
    poor = desk.reserve_flight("user3", "password789", "MU1566", "Business Class", "cash", 0)
    assert poor.startswith("Your cash balance is insufficient.")
    with pytest.raises(KeyError, match="membership_level"):
        desk.reserve_flight("user3", "wrong", "MU1566", "Economy Class", "bank", 0)
    with pytest.raises(TypeError):
        desk.reserve_flight("user3", "password789", "XX0", "Economy Class", "bank", 0)
    said = desk.modify_flight("user1", "res_2", "CZ4352", "Economy Class", 2)
    assert said == (
        "Flight number has been changed. Cabin change successful. Price difference refunded: 1100. "
        "Baggage has been added. Additional fee to be paid: 100."
    )
    assert desk.users["user1"]["bank_balance"] == 51_000.0
    assert desk.modify_flight("user2", "res_4", add_baggage=1) == "Flight information not found."
    assert "Free cancellation" in desk.cancel_reservation("user1", "res_1", "other")
    assert len(desk.reservations) == 5  # a cancelled booking stays
    assert desk.users["user1"]["cash_balance"] == 3200.0


def test_a_failing_call_of_a_multi_turn_item_is_spelt_out() -> None:
    world = World(["BaseApi"], phone(wifi=False))
    said = answers_or_letters(world, calls_in("[turn_on_wifi(), turn_on_wifi(now=True)]").calls)
    assert said == list(NOT_FORMATTED)
    assert world.state() == [{"BaseApi": {"wifi": True, "logged_in": True}}]  # what ran before stays


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[turn_on_wifi()]", ["turn_on_wifi"]),
        (" [turn_on_wifi()]", ["turn_on_wifi"]),
        ("turn_on_wifi()", ["turn_on_wifi"]),
        ("[a(x=1), b(y=[{'k': 'v'}])]", ["a", "b"]),
        ("[turn_on_wifi()] ", []),  # the published reader adds a second bracket
        ("[a(x={'k': 'v'})]", []),
        ("Your flights: [MU5678, CA1234]", []),
        ("Sure (of course) [see above]", []),
        ("", []),
        ("[]", []),
        ("I will call turn_on_wifi() now.", []),
    ],
)
def test_replies_are_read_as_leniently_as_published(text: str, names: list[str]) -> None:
    found = calls_in(text)
    assert [call.name for call in found.calls] == names
    assert found.refused is None
    assert bracketed_calls("a()").calls == ()


LITERALS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 2000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)
TOOLS = {tool: World(CLASSES, {}).tools[tool] for tool in World(CLASSES, {}).tools}
PARAMETERS = sorted(
    {name for tool in TOOLS.values() for name in tool.__code__.co_varnames[1 : tool.__code__.co_argcount]}
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*sorted(TOOLS), "eval", "state"]),
            st.dictionaries(st.sampled_from(PARAMETERS), LITERALS, max_size=4),
        ),
        max_size=6,
    )
)
def test_any_literal_arguments_give_an_answer_and_a_state(calls: list[tuple[str, dict[str, Any]]]) -> None:
    """Whatever an agent passes, the world answers and its state can be stored; twice gives the same."""
    both = [World(CLASSES, phone()) for _ in range(2)]
    given_calls = [Call(name, (), kwargs) for name, kwargs in calls]
    assert str(answers_of(both[0], given_calls)) == str(answers_of(both[1], given_calls))
    assert both[0].state() == both[1].state()
    assert check.stored(both[0].state()) == both[0].state()
