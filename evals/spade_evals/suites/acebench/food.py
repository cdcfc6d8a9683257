"""The delivery service on the simulated phone of ACEBench-Agent; see `phone`."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from spade_evals.suites.acebench.phone import Device, Reply, no, yes

ACCOUNTS: Final = {
    "Eve": ("password123", 500.0),
    "Frank": ("password456", 300.0),
    "Grace": ("password789", 150.0),
    "Helen": ("password321", 800.0),
    "Isaac": ("password654", 400.0),
    "Jack": ("password654", 120.0),
}
"""Password and balance in yuan."""

MENUS: Final = {
    "Domino's": {"Margherita Pizza": 68.0, "Super Supreme Pizza": 88.0},
    "Rice Village Bibimbap": {"Stone Pot Bibimbap": 35.0, "Korean Beef Bibimbap": 45.0},
    "Haidilao": {"Beef Rolls": 68.0, "Seafood Platter": 88.0},
    "Heytea": {"Cheese Milk Tea": 25.0, "Four Seasons Spring Milk Tea": 22.0},
    "Hema Fresh": {"Organic Vegetable Pack": 15.0, "Fresh Gift Pack": 99.0},
    "Jiutian BBQ": {"Korean Grilled Beef": 128.0, "Grilled Pork Belly": 78.0},
}
"""Merchant -> product -> price in yuan."""


class FoodPlatform:
    """A delivery service with accounts of its own. Only its log-in asks for Wi-Fi."""

    TOOLS: ClassVar = ("login_food_platform", "check_balance", "add_food_delivery_order", "get_products")
    SAVED: ClassVar = ("users", "logged_in_users", "orders")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.users: dict[str, dict[str, Any]] = {
            name: {"user_id": f"U{100 + number}", "password": password, "balance": balance}
            for number, (name, (password, balance)) in enumerate(ACCOUNTS.items())
        }
        self.logged_in_users: list[str] = []
        self.orders: list[dict[str, Any]] = []

    def login_food_platform(self, username: str, password: str) -> Reply:
        """Log in once."""
        if not self.device.wifi:
            return no("Wi-Fi is not enabled, unable to login")
        if username not in self.users:
            return no("User does not exist")
        if self.users[username]["password"] != password:
            return no("Incorrect password")
        if username in self.logged_in_users:
            return no(f"{username} is already logged in")
        self.logged_in_users.append(username)
        return yes(f"User {username} has successfully logged in!")

    def check_balance(self, user_name: str) -> float:
        """Balance in yuan; 0 for nobody."""
        return float(self.users[user_name]["balance"]) if user_name in self.users else 0.0

    def get_products(self, merchant_name: str) -> list[dict[str, Any]] | Reply:
        """Menu of a merchant."""
        menu = MENUS.get(merchant_name)
        if menu is None:
            return no(f"Merchant '{merchant_name}' does not exist")
        return [{"product": product, "price": price} for product, price in menu.items()]

    def add_food_delivery_order(
        self, username: str, merchant_name: str, items: list[dict[str, Any]]
    ) -> Reply:
        """Order and pay; all or nothing."""
        if username not in self.logged_in_users:
            return no(f"User {username} is not logged in to the food platform")
        if merchant_name not in MENUS:
            return no("Merchant does not exist")
        menu, lines, total = MENUS[merchant_name], [], 0.0
        for item in items:
            product, quantity = item.get("product"), item.get("quantity", 1)
            if not isinstance(quantity, int) or quantity <= 0:
                return no(f"Invalid quantity {quantity} for product {product}")
            price = next((cost for name, cost in menu.items() if name == product), None)
            if price is None:
                return no(f"Product {product} does not exist in {merchant_name}'s menu")
            total += price * quantity
            lines.append({"product": product, "quantity": quantity, "price_per_unit": price})
        if total > self.users[username]["balance"]:
            return no("Insufficient balance to place the order")
        self.users[username]["balance"] -= total
        self.orders.append(
            {"user_name": username, "merchant_name": merchant_name, "items": lines, "total_price": total}
        )
        return yes(
            f"Food delivery order successfully placed with {merchant_name}. Total amount: {total} yuan"
        )
