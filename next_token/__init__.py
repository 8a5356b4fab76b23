"""The command `next-token` and what it needs: runs, logs, large data, real models; built on `src`.

`src` never imports this package. Chapters use it, but none explains its code.
"""
