"""Colours of figures. Each is a CSS variable of the page with this value as its fallback."""

# Okabe and Ito's colours, which every common colour vision distinguishes; markers and hatches differ too.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK, PAPER, GRID, BAND = "#000000", "#ffffff", "#dddddd", "#c8d4e3"
VARIABLES = {INK: "ink", PAPER: "paper", GRID: "grid", BAND: "band", "#777777": "grey"} | {
    colour: f"series-{at}" for at, colour in enumerate(COLOURS)
}
