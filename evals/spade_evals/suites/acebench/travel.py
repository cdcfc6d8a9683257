"""The simulated airline desk of ACEBench-Agent: flights, bookings, accounts.

As published, with its peculiarities: a wrong password is an error of the program and not a refusal; a change
of cabin is priced on the flight that was booked before; a booking is not removed when it is cancelled; for
cancelling it is 14 July 2024, 06:00. Sentences are those of the benchmark.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

NOW: Final = datetime(2024, 7, 14, 6)
ECONOMY: Final = "Economy Class"
BUSINESS: Final = "Business Class"
BAG: Final = 50
"""Yuan for each piece above the free ones."""
FREE_BAGS: Final = {
    "regular": {ECONOMY: 1, BUSINESS: 2},
    "silver": {ECONOMY: 2, BUSINESS: 3},
    "gold": {ECONOMY: 3, BUSINESS: 3},
}

USERS: Final = {
    "user1": ("Eve", "password123", 2000.0, 50000.0, "regular"),
    "user2": ("Frank", "password456", 8000.0, 8000.0, "silver"),
    "user3": ("Grace", "password789", 1000.0, 5000.0, "gold"),
}
"""Name, password, cash and bank balance in yuan, membership."""

FLIGHTS: Final = (
    ("CA1234", "Beijing", "Shanghai", "2024-07-15 08:00:00", "2024-07-15 10:30:00", 5, 1200, 3000),
    ("MU5678", "Shanghai", "Beijing", "2024-07-16 09:00:00", "2024-07-16 11:30:00", 3, 1900, 3000),
    ("CZ4321", "Shanghai", "Beijing", "2024-07-16 20:00:00", "2024-07-16 22:00:00", 8, 2500, 4000),
    ("CZ4352", "Shanghai", "Beijing", "2024-07-17 20:00:00", "2024-07-17 22:00:00", 8, 1600, 2500),
    ("MU3561", "Beijing", "Nanjing", "2024-07-18 08:00:00", "2024-07-18 10:00:00", 8, 1500, 4000),
    ("MU1566", "Beijing", "Nanjing", "2024-07-18 20:00:00", "2024-07-18 22:00:00", 8, 1500, 4000),
    ("CZ1765", "Nanjing", "Shenzhen", "2024-07-17 20:30:00", "2024-07-17 22:00:00", 8, 1500, 2500),
    ("CZ1765", "Nanjing", "Shenzhen", "2024-07-18 12:30:00", "2024-07-18 15:00:00", 8, 1500, 2500),
    ("MH1765", "Xiamen", "Chengdu", "2024-07-17 12:30:00", "2024-07-17 15:00:00", 8, 1500, 2500),
    ("MH2616", "Chengdu", "Xiamen", "2024-07-18 18:30:00", "2024-07-18 21:00:00", 8, 1500, 2500),
    ("MH2616", "Chengdu", "Fuzhou", "2024-07-16 18:30:00", "2024-07-16 21:00:00", 8, 1500, 2500),
)
"""Number, from, to, departure, arrival, seats, price in economy and business."""

BOOKINGS: Final = (
    ("user1", "CA1234", ECONOMY, "Beijing", "Shanghai"),
    ("user1", "MU5678", BUSINESS, "Shanghai", "Beijing"),
    ("user2", "MH1765", BUSINESS, "Xiamen", "Chengdu"),
    ("user2", "MU2616", BUSINESS, "Chengdu", "Xiamen"),
)
"""User, flight, cabin, from, to of bookings `res_1` to `res_4`. There is no flight MU2616."""


class Travel:
    """Flights can be looked up by anyone; only a booking asks for the password."""

    TOOLS: ClassVar = (
        "get_user_details",
        "get_flight_details",
        "get_reservation_details",
        "find_transfer_flights",
        "reserve_flight",
        "cancel_reservation",
        "modify_flight",
    )
    SAVED: ClassVar = ("users", "reservations")

    def __init__(self) -> None:
        user_keys = ("user_name", "password", "cash_balance", "bank_balance", "membership_level")
        flight_keys = ("flight_no", "origin", "destination", "depart_time", "arrival_time", "status",
                       "seats_available", "economy_price", "business_price")  # fmt: skip
        self.users: dict[str, dict[str, Any]] = {
            key: dict(zip(user_keys, row, strict=True)) for key, row in USERS.items()
        }
        self.flights: list[dict[str, Any]] = [
            dict(zip(flight_keys, (*row[:5], "available", *row[5:]), strict=True)) for row in FLIGHTS
        ]
        self.reservations: list[dict[str, Any]] = [
            {
                **_booking(f"res_{number}", user, flight, "bank", cabin, 1),
                "origin": origin,
                "destination": destination,
            }
            for number, (user, flight, cabin, origin, destination) in enumerate(BOOKINGS, start=1)
        ]

    # --- looking up ------------------------------------------------------------------------------------

    def get_user_details(self, user_id: str, password: str) -> dict[str, Any]:
        """The account without its password."""
        user = self._account(user_id, password)
        return {key: value for key, value in user.items() if key != "password"}

    def get_flight_details(
        self, origin: str | None = None, destination: str | None = None
    ) -> list[dict[str, Any]] | str:
        """Direct flights; either end may be left open."""
        found = [
            dict(flight)
            for flight in self.flights
            if (not origin or flight["origin"] == origin)
            and (not destination or flight["destination"] == destination)
        ]
        return found or "There are no direct flights that meet the criteria."

    def get_reservation_details(
        self, reservation_id: str | None = None, user_id: str | None = None
    ) -> list[dict[str, Any]] | dict[str, Any]:
        """Bookings by number, else by user, each with its flight."""
        if not reservation_id and not user_id:
            return {"status": "error", "message": "Please provide a valid reservation ID or user ID"}
        key, wanted = ("reservation_id", reservation_id) if reservation_id else ("user_id", user_id)
        return [
            {**booking, "flight_info": self._flight(booking["flight_no"])}
            for booking in self.reservations
            if booking[key] == wanted
        ]

    def find_transfer_flights(
        self, origin_city: str, transfer_city: str, destination_city: str
    ) -> list[dict[str, Any]] | str:
        """Pairs of flights of which the first lands before the second departs."""
        first = self._between(origin_city, transfer_city)
        second = self._between(transfer_city, destination_city)
        found = [
            {"first_leg": one, "second_leg": two}
            for one in first
            for two in second
            if _time(one["arrival_time"]) < _time(two["depart_time"])
        ]
        return found or "No connecting flights that meet the criteria were found."

    # --- booking ---------------------------------------------------------------------------------------

    def reserve_flight(
        self, user_id: str, password: str, flight_no: str, cabin: str, payment_method: str, baggage_count: int
    ) -> str:
        """Book and pay. Everything but economy is priced as business."""
        user, flight = self._account(user_id, password), self._flight(flight_no)
        if flight is None:
            raise TypeError("'NoneType' object is not subscriptable")  # as published: nothing checks it
        cost = flight["economy_price"] if cabin == ECONOMY else flight["business_price"]
        cost += max(baggage_count - FREE_BAGS[user["membership_level"]][cabin], 0) * BAG
        if payment_method not in ("cash", "bank"):
            return "Invalid payment method"
        if not self._pay(self.users[user_id], payment_method, cost):
            return (
                f"Your {payment_method} balance is insufficient. "
                "Please consider using another payment method."
            )
        flight["seats_available"] -= 1
        number = f"res_{len(self.reservations) + 1}"
        self.reservations.append(_booking(number, user_id, flight_no, payment_method, cabin, baggage_count))
        return (
            f"Booking successful. Reservation ID: {number}. Total cost: {cost} yuan (including baggage fees)."
        )

    def modify_flight(
        self,
        user_id: str,
        reservation_id: str,
        new_flight_no: str | None = None,
        new_cabin: str | None = None,
        add_baggage: int = 0,
        new_payment_method: str | None = None,
    ) -> str:
        """Change flight, then cabin, then baggage; a later failure leaves the earlier changes."""
        booking = self._booked(user_id, reservation_id)
        if booking is None:
            return "Reservation not found or user ID does not match."
        before = self._flight(booking["flight_no"])
        if before is None:
            return "Flight information not found."
        said = []
        if new_flight_no and new_flight_no != booking["flight_no"]:
            after = self._flight(new_flight_no)
            if after is None or any(after[end] != before[end] for end in ("origin", "destination")):
                return "Flight change failed: Invalid new flight number or destination does not match."
            booking["flight_no"] = new_flight_no
            said.append("Flight number has been changed.")
        user, method = self.users[user_id], new_payment_method or booking["payment_method"]
        if new_cabin and new_cabin != booking["cabin"]:
            said += self._change_cabin(user, method, booking, before, new_cabin)
        if add_baggage > 0:
            said += self._add_baggage(user, method, booking, add_baggage)
        return " ".join(said or ["Modification completed with no additional fees."])

    def cancel_reservation(self, user_id: str, reservation_id: str, reason: str) -> str:
        """Refund in cash: all of it more than a day before departure, else 90 %."""
        user = self.users.get(user_id)
        if user is None:
            return "Invalid user ID."
        booking = self._booked(user_id, reservation_id)
        if booking is None:
            return "Invalid reservation ID or it does not belong to the user."
        flight = self._flight(booking["flight_no"])
        if flight is None:
            return "Invalid flight information."
        left = _time(flight["depart_time"]) - NOW
        if left < timedelta(0):
            return "The flight segment has been used and cannot be canceled."
        price = flight["economy_price"] if booking["cabin"] == ECONOMY else flight["business_price"]
        if reason == "The airline has canceled the flight.":
            user["cash_balance"] += price
            return (
                "The flight has been canceled. Your reservation will be canceled free of charge, "
                f"and {price} yuan has been refunded."
            )
        if left > timedelta(days=1):
            user["cash_balance"] += price
            return (
                "More than 24 hours before departure. Free cancellation successful, "
                f"{price} yuan has been refunded."
            )
        fee = price * 0.1
        user["cash_balance"] += price - fee
        return (
            f"Less than 24 hours before departure. A cancellation fee of {fee} yuan has been deducted, "
            f"and {price - fee} yuan has been refunded."
        )

    # --- parts -----------------------------------------------------------------------------------------

    def _account(self, user_id: str, password: str) -> dict[str, Any]:
        """The user, or the refusal that the published class takes for a user without membership."""
        user = self.users.get(user_id)
        if user is not None and user["password"] == password:
            return user
        return {"status": "error", "message": "Incorrect username or password."}

    def _flight(self, number: str) -> dict[str, Any] | None:
        """The first flight of that number: of CZ1765 and MH2616 there are two."""
        return next((flight for flight in self.flights if flight["flight_no"] == number), None)

    def _between(self, origin: str, destination: str) -> list[dict[str, Any]]:
        return [
            dict(flight)
            for flight in self.flights
            if (flight["origin"], flight["destination"]) == (origin, destination)
        ]

    def _booked(self, user_id: str, number: str) -> dict[str, Any] | None:
        return next(
            (b for b in self.reservations if b["reservation_id"] == number and b["user_id"] == user_id), None
        )

    @staticmethod
    def _pay(user: dict[str, Any], method: str, amount: float) -> bool:
        """Take `amount` yuan from the balance if it is there; an unknown method pays nothing."""
        key = f"{method}_balance"
        if method not in ("cash", "bank"):
            return True
        if amount > user[key]:
            return False
        user[key] -= amount
        return True

    def _change_cabin(
        self, user: dict[str, Any], method: str, booking: dict[str, Any], flight: dict[str, Any], cabin: str
    ) -> list[str]:
        prices = {ECONOMY: flight["economy_price"], BUSINESS: flight["business_price"]}
        more = prices.get(cabin, 0) - prices.get(booking["cabin"], 0)
        booking["cabin"] = cabin
        if more > 0:
            if self._pay(user, method, more):
                return [f"Cabin change successful. Price difference paid: {more}."]
            return ["Insufficient balance to pay the cabin price difference."]
        if more < 0:
            self._pay(user, method, more)
            return [f"Cabin change successful. Price difference refunded: {-more}."]
        return []

    def _add_baggage(
        self, user: dict[str, Any], method: str, booking: dict[str, Any], pieces: int
    ) -> list[str]:
        free = FREE_BAGS.get(user["membership_level"], {}).get(booking["cabin"], 0)
        total = booking["baggage"] + pieces
        cost = max(0, total - free) * BAG
        booking["baggage"] = total
        if cost <= 0:
            return []
        if self._pay(user, method, cost):
            return [f"Baggage has been added. Additional fee to be paid: {cost}."]
        return ["Insufficient balance to pay the additional baggage fees."]


def _booking(number: str, user: str, flight: str, method: str, cabin: str, bags: int) -> dict[str, Any]:
    return {
        "reservation_id": number,
        "user_id": user,
        "flight_no": flight,
        "payment_method": method,
        "cabin": cabin,
        "baggage": bags,
    }


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
