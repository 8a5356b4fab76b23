"""The command `next-token` and what it needs: runs, logs, large data, real models; built on `src`.

`src` never imports it, and no chapter derives it.
"""
