"""Defines windows, their assigners, triggers and serializers. `penstock.datastream.window` offers all of them."""
