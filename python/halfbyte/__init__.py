"""Halfbyte's Python side: `tasks` (seeded questions, worked solutions, graders), `reasoner` (the shipped model's
tokenizer and folder) and `reqat` (its training)."""
