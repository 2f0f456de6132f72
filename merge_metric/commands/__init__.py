"""Commands on models and their predictions, exports, and what is published of them."""
