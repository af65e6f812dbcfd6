hb_fuzz(fuzz_chat_template SRCS text/fuzz_chat_template.cpp DEPS text base)
hb_fuzz(fuzz_tokenizer_json SRCS text/fuzz_tokenizer_json.cpp DEPS text)
hb_fuzz(fuzz_tokenizer_round_trip SRCS text/fuzz_tokenizer_round_trip.cpp DEPS text base)
hb_fuzz(fuzz_output_text SRCS text/fuzz_output_text.cpp DEPS text base)
