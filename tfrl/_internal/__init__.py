"""What several rooms need and no user does: checks of arguments, careful arithmetic.

Nothing here is public: names and behaviour may change at any time.
"""
