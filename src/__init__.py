"""The companion package of *The Next Token*: a folder for each part of the book.

    tools  <  texts  <  likelihood  <  tokens  <  attention  <  gpt  <  today

A folder imports only folders before it. Each module opens with the question it answers and names
the chapter that derives it; what no chapter derives is in `next_token`, which nothing here imports.
"""
