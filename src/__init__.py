"""The companion package of *The Next Token*: a folder for each part of the book.

    tools  <  texts  <  likelihood  <  tokens  <  attention  <  gpt

A folder imports only folders before it. Each module opens with the question it answers and names
the chapter that derives it.
"""
