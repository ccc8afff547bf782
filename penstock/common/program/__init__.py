"""Deals with the user's program: its classes by name, its functions' signatures, its errors."""
