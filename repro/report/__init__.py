"""Reports: one model, rendered. `model` turns a bundle into records, the renderers are pure functions of it."""
