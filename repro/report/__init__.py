"""Reports: one model, rendered. `model` turns a bundle into plain data, the renderers are pure functions of it."""
