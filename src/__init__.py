"""The companion package of *The Next Token*: one concept a module, in layers.

Each module opens with the question it answers and names the chapter that derives it.
"""
