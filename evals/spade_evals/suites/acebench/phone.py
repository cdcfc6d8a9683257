"""The simulated phone of ACEBench-Agent: device, messages, reminders (food orders: `food`).

Small state machines without clock or chance. The sentences they answer with are those of the
benchmark, because agents act on them. Methods named in `TOOLS` are what an agent may call; `SAVED` names what
is compared at the end. A call with wrong arguments raises whatever Python raises; `world` makes text of it.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

Reply = dict[str, Any]

NAMES: Final = ("Eve", "Frank", "Grace", "Helen", "Isaac", "Jack")


def no(message: str) -> Reply:
    """A refusal."""
    return {"status": False, "message": message}


def yes(message: str, **more: Any) -> Reply:
    """A confirmation."""
    return {"status": True, "message": message, **more}


@dataclass(slots=True)
class Device:
    """Wi-Fi and log-in, shared by all parts of one phone."""

    wifi: bool = False
    logged_in: bool = True


class BaseApi:
    """Switches of the device."""

    TOOLS: ClassVar = ("turn_on_wifi", "login_device")
    SAVED: ClassVar = ("wifi", "logged_in")

    def __init__(self, device: Device) -> None:
        self.device = device

    @property
    def wifi(self) -> bool:
        """Whether Wi-Fi is on."""
        return self.device.wifi

    @property
    def logged_in(self) -> bool:
        """Whether the device is logged in."""
        return self.device.logged_in

    def turn_on_wifi(self) -> Reply:
        """Turn Wi-Fi on."""
        self.device.wifi = True
        return yes("Wi-Fi has been turned on")

    def login_device(self) -> Reply:
        """Log in."""
        self.device.logged_in = True
        return yes("Device has been logged in")


# --- messages ------------------------------------------------------------------------------------------

PHONE_IDS: Final = {name: f"USR{100 + number}" for number, name in enumerate(NAMES)}

INBOX: Final = (
    (
        "Eve",
        "Frank",
        "Hey Frank, don't forget about our meeting on 2024-06-11 at 4 PM in Conference Room 1.",
        "2024-06-09",
    ),
    (
        "Frank",
        "Grace",
        'Can you help me order a "Margherita Pizza" delivery? The merchant is Domino\'s.',
        "2024-03-09",
    ),
    (
        "Grace",
        "Helen",
        "Please check the milk tea delivery options available from Heytea and purchase a cheaper milk tea "
        'for me. After making the purchase, remember to reply to me with "Already bought."',
        "2023-12-05",
    ),
    ("Helen", "Grace", "No problem Helen, I can assist you.", "2024-09-09"),
    ("Isaac", "Jack", "Isaac, are you available for a call?", "2024-06-06"),
    ("Jack", "Isaac", "Yes Jack, let's do it in 30 minutes.", "2024-01-15"),
)
"""Sender, receiver, text, day of messages 1 to 6. The box is full with them."""

CAPACITY: Final = 6
"""Of the message box, and of the reminders."""


class MessageApi:
    """Text messages. A sent message has no time, so asking for the latest one after sending is an error."""

    TOOLS: ClassVar = (
        "send_message",
        "delete_message",
        "view_messages_between_users",
        "search_messages",
        "get_latest_message_id",
        "get_earliest_message_id",
    )
    SAVED: ClassVar = ("inbox",)

    def __init__(self, device: Device) -> None:
        self.device = device
        self.inbox: dict[int, dict[str, Any]] = {
            number: {
                "sender_id": PHONE_IDS[sender],
                "receiver_id": PHONE_IDS[receiver],
                "message": text,
                "time": day,
            }
            for number, (sender, receiver, text, day) in enumerate(INBOX, start=1)
        }
        self._last_id = len(self.inbox)

    def send_message(self, sender_name: str, receiver_name: str, message: str) -> Reply:
        """Send, if the device is ready and there is room."""
        if not self.device.logged_in:
            return no("Device not logged in, unable to send message")
        if not self.device.wifi:
            return no("Wi-Fi is turned off, cannot send messages at this time")
        if len(self.inbox) >= CAPACITY:
            return no("Inbox capacity is full. You need to ask the user which message to delete.")
        if sender_name not in PHONE_IDS or receiver_name not in PHONE_IDS:
            return no("Sender or receiver does not exist")
        self._last_id += 1
        self.inbox[self._last_id] = {
            "sender_id": PHONE_IDS[sender_name],
            "receiver_id": PHONE_IDS[receiver_name],
            "message": message,
        }
        return yes(f"Message successfully sent to {receiver_name}.")

    def delete_message(self, message_id: int) -> Reply:
        """Delete by number."""
        if not self.device.logged_in:
            return no("Device not logged in, unable to delete message")
        if message_id not in self.inbox:
            return no("Message ID does not exist")
        del self.inbox[message_id]
        return yes(f"Message ID {message_id} has been successfully deleted.")

    def view_messages_between_users(self, sender_name: str, receiver_name: str) -> Reply:
        """All messages from one person to another."""
        if not self.device.logged_in:
            return no("Device not logged in, unable to view message information")
        if sender_name not in PHONE_IDS:
            return no("Sender does not exist")
        if receiver_name not in PHONE_IDS:
            return no("Receiver does not exist")
        ends = PHONE_IDS[sender_name], PHONE_IDS[receiver_name]
        found = [
            {"id": number, "sender": sender_name, "receiver": receiver_name, "message": kept["message"]}
            for number, kept in self.inbox.items()
            if (kept["sender_id"], kept["receiver_id"]) == ends
        ]
        return {"status": True, "messages": found} if found else no("No related message records found")

    def search_messages(self, user_name: str, keyword: str) -> Reply:
        """Messages from or to one person that contain a word. Needs no log-in."""
        if user_name not in PHONE_IDS:
            return no("User does not exist")
        who, word = PHONE_IDS[user_name], keyword.lower()
        found = [
            {"id": number, **{key: kept[key] for key in ("sender_id", "receiver_id", "message")}}
            for number, kept in self.inbox.items()
            if who in (kept["sender_id"], kept["receiver_id"]) and word in kept["message"].lower()
        ]
        if not found:
            return no("No messages found containing the keyword")
        return {"status": True, "messages": found}

    def get_latest_message_id(self) -> Reply:
        """Number of the newest message."""
        return self._edge("latest", max)

    def get_earliest_message_id(self) -> Reply:
        """Number of the oldest message."""
        return self._edge("earliest", min)

    def _edge(self, word: str, choose: Callable[..., int]) -> Reply:
        if not self.device.logged_in:
            return no(f"Device not logged in, unable to retrieve the {word} sent message ID.")
        if not self.inbox:
            return no("No message records found")
        days = {number: datetime.strptime(kept["time"], "%Y-%m-%d") for number, kept in self.inbox.items()}
        number = choose(days, key=days.__getitem__)
        return yes(f"The {word} message ID is {number}", message_id=number)


# --- reminders -----------------------------------------------------------------------------------------

REMINDERS: Final = (
    ("Doctor's Appointment", "Visit Dr. Smith for a checkup.", "2024-07-15 09:30"),
    ("Team Meeting", "Monthly project review with the team.", "2024-07-17 11:00"),
    (
        "To-do list",
        'First, help Frank place a food delivery order at "Hema Fresh," ordering two "Fresh Gift Packs." '
        'Then, send a message to Frank saying, "The price of the purchased goods is () yuan." Replace the '
        "parentheses with the actual amount, keeping one decimal place.",
        "2024-07-16 11:00",
    ),
)
"""Title, description, time of reminders 1 to 3, whose ids are 1001 to 1003; a new one gets 4, not 1004."""


class ReminderApi:
    """Reminders. The list of functions promises `search_reminders` too, which the published class lacks."""

    TOOLS: ClassVar = ("add_reminder", "view_reminder_by_title")
    SAVED: ClassVar = ("reminder_list",)

    def __init__(self, device: Device) -> None:
        self.device = device
        self.reminder_list = {
            number: _reminder(1000 + number, *what) for number, what in enumerate(REMINDERS, start=1)
        }
        self._last_id = len(self.reminder_list)

    def add_reminder(self, title: str, description: str, time: str) -> Reply:
        """Add one."""
        if not self.device.logged_in:
            return no("Device not logged in. Unable to add a new reminder.")
        if len(self.reminder_list) >= CAPACITY:
            return no("Reminder capacity is full. Unable to add a new reminder.")
        self._last_id += 1
        self.reminder_list[self._last_id] = _reminder(self._last_id, title, description, time)
        return yes(f"Reminder '{title}' was successfully added.")

    def view_reminder_by_title(self, title: str) -> Reply:
        """Look one up by its exact title."""
        if not self.device.logged_in:
            return no("The device is not logged in, so you cannot view notifications")
        for kept in self.reminder_list.values():
            if kept["title"] == title:
                return {"status": True, "reminder": dict(kept)}
        return no(f"No reminder found with the title '{title}'.")


def _reminder(number: int, title: str, description: str, time: str) -> dict[str, Any]:
    return {
        "reminder_id": number,
        "title": title,
        "description": description,
        "time": time,
        "notified": False,
    }


def saved(part: Any) -> dict[str, Any]:
    """A copy of what is compared at the end."""
    return {name: deepcopy(getattr(part, name)) for name in part.SAVED}
