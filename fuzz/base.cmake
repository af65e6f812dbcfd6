hb_fuzz(fuzz_json SRCS base/fuzz_json.cpp DEPS base)
