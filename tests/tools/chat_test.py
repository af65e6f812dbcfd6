"""halfbyte run on a terminal: the conversation, colours, Ctrl-C and Ctrl-D."""

import re

import tiny_chat
from terminal import Terminal

GREY, PLAIN = "\033[90m", "\033[0m"


def start(model, *args, **env):
    t = Terminal("run", model, *args, **env)
    t.wait_for(">>> ")
    return t


def ask(t, text):
    t.send(text + "\n")
    return t.wait_for(">>> ")


def test_a_conversation(model):
    t = start(model)
    answer = ask(t, "Hi")
    assert "Done" in answer and re.search(r"\d+ prompt tokens in .* stop", answer)
    first = int(re.search(r"(\d+) prompt tokens", answer)[1])
    # The second question comes with the first and its answer: "<|im_start|>assistant\nDone<|im_end|>\n" and the new turn.
    second = int(re.search(r"(\d+) prompt tokens", ask(t, "Hi"))[1])
    assert second > first + 10
    assert "A new conversation." in ask(t, "/clear")
    assert int(re.search(r"(\d+) prompt tokens", ask(t, "Hi"))[1]) == first
    t.send("/bye\n")
    assert t.finish() == 0


def test_reasoning_is_grey(model):
    t = start(model)
    answer = ask(t, "Hi")
    assert GREY + "a" in answer and PLAIN in answer
    grey = re.search(re.escape(GREY) + "(.*?)" + re.escape(PLAIN), answer, re.DOTALL)[1]
    assert grey.replace(GREY, "").strip() == "ab"
    t.send("\x04")  # Ctrl-D
    assert t.finish() == 0


def test_entropy_colours(model):
    t = start(model, "--entropy")
    answer = ask(t, "Hi")
    assert re.search("\033\\[(90|0;38;5;[0-9]+)m[^\033]*a", answer)         # reasoning
    assert re.search("\033\\[0;1(;38;5;[0-9]+)?m[^\033]*D", answer)          # answer: bold
    assert answer.rstrip().count(PLAIN) >= 1
    t.send("\x04")
    assert t.finish() == 0


def test_no_color(model):
    t = start(model, NO_COLOR="1")
    answer = ask(t, "Hi")
    assert "\033[90m" not in answer and "ab" in answer and "Done" in answer
    t.send("/bye\n")
    assert t.finish() == 0
    t = start(model, TERM="dumb")
    assert "\033[90m" not in ask(t, "Hi")
    t.send("/bye\n")
    assert t.finish() == 0


def test_settings(model):
    t = start(model)
    assert "temperature, top_p" in ask(t, "/?")
    assert "error:" not in ask(t, "/set parameter temperature 0.5")
    assert "error:" not in ask(t, "/set parameter seed 11")
    assert "temperature 0.5, seed 11" in ask(t, "/show")
    assert "error:" not in ask(t, "/set parameter max_tokens 2")
    assert "length" in ask(t, "Hi")
    assert "error:" not in ask(t, "/set quiet")
    assert "prompt tokens" not in ask(t, "Hi")
    assert "A new conversation." in ask(t, "/set system Be brief")
    assert "Be brief" in ask(t, "/show")
    assert "error:" not in ask(t, "/set nothink")
    assert "\033[90m" not in ask(t, "Hi")
    assert "error: unknown parameter 'warmth'" in ask(t, "/set parameter warmth 3")
    assert "error: temperature: 'hot' is no number" in ask(t, "/set parameter temperature hot")
    assert "error: unknown setting 'x'" in ask(t, "/set x")
    assert "error: unknown command '/nothing'" in ask(t, "/nothing here")
    t.send("/bye\n")
    assert t.finish() == 0


def test_a_parameter_is_refused_when_it_is_set_and_the_old_one_stays(model):
    t = start(model)
    for setting in ("temperature nan", "temperature -1", "top_p 7", "top_k -4", "max_tokens", "max_tokens 0", "temperature", "seed -1", ""):
        assert "error:" in ask(t, f"/set parameter {setting}".strip()), setting
    assert "error: /set needs what to set" in ask(t, "/set")
    assert "greedy" in ask(t, "/show")
    assert "sampling  temperature 0.5, " in ask(t, "/set parameter temperature 0.5")
    assert "max_tokens 2048" in ask(t, "/set parameter max_tokens 2K")
    assert "Done" in ask(t, "Hi")
    t.send("/bye\n")
    assert t.finish() == 0
    t = start(model, "--policy", "reset", "--reset-tau0", "2")
    assert "error: the policy reset chooses the temperature; /set parameter policy fixed" in ask(t, "/set parameter temperature 0.5")
    assert "sampling  temperature 0.5, seed" in ask(t, "/set parameter policy fixed") + ask(t, "/set parameter temperature 0.5")
    assert "sampling  token: tau0 2, t_low 0.3," in ask(t, "/set parameter policy token"), "the flags' values, another rule"
    assert "error:" in ask(t, "/set parameter policy tomorrow") and "token: tau0 2" in ask(t, "/show")
    assert "min-p 0.25" in ask(t, "/set parameter min_p 0.25") and "top-k 5" in ask(t, "/set parameter top_k 5")
    assert "error: --marker-penalty: no marker word" in ask(t, "/set parameter marker_penalty 1")
    assert "error: marker_penalty: expected a number from 0 to 100" in ask(t, "/set parameter marker_penalty -1")
    assert "error: stop_on_loop: found 'maybe', expected on or off" in ask(t, "/set parameter stop_on_loop maybe")
    assert "stop_on_loop on" in ask(t, "/set parameter stop_on_loop on")
    t.send("/bye\n")
    assert t.finish() == 0


def test_several_lines(model):
    t = start(model)
    t.send('"""one\n')
    t.wait_for("... ")
    t.send('two"""\n')
    assert "Done" in t.wait_for(">>> ")
    t.send("/bye\n")
    assert t.finish() == 0


def test_letters_beyond_ascii(model):
    t = start(model, "--raw")
    assert re.search(r"^w\r?$", ask(t, "é"), re.MULTILINE)  # the chain goes x, é, w
    t.send("/bye\n")
    assert t.finish() == 0


def test_interrupt_stops_the_answer_and_not_the_conversation(model):
    t = start(model, "--raw")
    t.send("z\n")
    t.wait_for("yzyzyz")
    t.send("\x03")  # Ctrl-C
    assert "cancelled" in t.wait_for(">>> ")
    assert "éw" in ask(t, "x")
    t.send("/bye\n")
    assert t.finish() == 0


def test_interrupt_at_the_prompt_clears_the_line(model):
    t = start(model)
    t.send("half a mess")
    t.wait_for("mess")
    t.send("\x03")
    t.wait_for("Ctrl-D or /bye leaves.")
    t.wait_for(">>> ")
    assert "Done" in ask(t, "Hi")
    t.send("\x04")
    assert t.finish() == 0


def test_a_long_wait_shows_that_it_lives(model):
    t = Terminal("run", model, "x " * 600)
    assert t.finish() == 0 and re.search(r"reading \d{4} tokens", t.seen) and "Done" in t.seen
    t = Terminal("inspect", model, model)
    assert t.finish() == 0 and re.search(r"comparing +\d+%", t.seen), t.seen
    t = Terminal("bench", "--synthetic", "tiny", "--policy-cost", "--tokens", "4")
    assert t.finish() == 0 and re.search(r"measuring +\d+%", t.seen) and not re.search(r"measuring[^\r]* B of ", t.seen)


def test_an_empty_prompt_opens_no_conversation(model):
    t = Terminal("run", model, "")
    assert t.finish() == 2 and "the prompt is empty" in t.seen


def test_one_answer_on_a_terminal_says_what_it_did(model):
    t = Terminal("run", model, "Hi")
    assert t.finish() == 0
    for text in ("plan", "kernels", "sampling", "Done", "prompt tokens in"):
        assert text in t.seen
    t = Terminal("run", model, "Hi", "--quiet")
    assert t.finish() == 0
    assert "sampling" not in t.seen and "Done" in t.seen


def test_the_newer_ways_of_drawing_can_be_set(tmp_path):
    """A model with a marker word that goes round for ever: the penalty is taken, and the loop is where the answer ends."""
    folder = tiny_chat.write_model_of(tmp_path / "model", [["\n", "wait", "k", "wait"]], "wait")
    t = start(folder, "--max-tokens", "200")
    assert "200 tokens" in ask(t, "Hi")
    assert "stop_on_loop on" in ask(t, "/set parameter stop_on_loop on")
    assert ", loop" in ask(t, "Hi")
    assert "greedy, marker penalty 3" in ask(t, "/set parameter marker_penalty 3")
    assert "marker penalty" not in ask(t, "/set parameter marker_penalty 0")
    t.send("/bye\n")
    assert t.finish() == 0
