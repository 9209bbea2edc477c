"""Who may do what, and how somebody proves who they are. So far both are kept, not enforced."""
