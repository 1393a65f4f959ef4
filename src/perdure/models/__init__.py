"""Model catalogue, windows and token estimates.

A text becomes figures (`figures`), once; `sizes` says what of a message is sent; `families` weighs the figures for a
model; `counter` keeps the running sum of a conversation and corrects it by real usage. Beside it: `budgets` shares a
window out, `limits` finds how large it is and who said so, `catalog` knows windows and prices.

Read `tokens.py` first: it is the way in.
"""
