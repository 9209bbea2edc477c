"""Clients of a broker. So far there is `simple`, which blocks on one plain socket."""
