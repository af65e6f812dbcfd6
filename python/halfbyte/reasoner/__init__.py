"""The shipped model `halfbyte-reasoner`: its tokenizer, its chat format, its folder."""
