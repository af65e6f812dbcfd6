"""The marker penalty's words (Lotfi et al., arXiv 2606.00206), and which tokens of a vocabulary are one of them."""

WORDS = """
perhaps maybe wait Wait actually hold Hmm hmm Alternatively alternatively However however instead Instead But but though although yet
rather unless otherwise nonetheless nevertheless regardless still anyway Or or either whether uncertain unsure possibly might could
another different reconsider rethink backtrack retry recheck revisit doubt confused wrong mistake error incorrect
""".split()


def marker_tokens(texts):
    """Ascending ids of the texts (of all tokens, by id; None where there is no text) that are a word, with one space in front or
    without: text behind a line's beginning has none, elsewhere a word begins with its space."""
    words = set(WORDS) | {" " + word for word in WORDS}
    return tuple(i for i, text in enumerate(texts) if text in words)
