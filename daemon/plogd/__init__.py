"""The plog broker: a pure core (log, replica, controller, apis) and a thin Twisted shell."""
