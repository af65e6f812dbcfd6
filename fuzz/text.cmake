hb_fuzz(fuzz_chat_template SRCS text/fuzz_chat_template.cpp DEPS text base)
