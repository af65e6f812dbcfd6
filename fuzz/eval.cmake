hb_fuzz(fuzz_questions SRCS eval/fuzz_questions.cpp DEPS eval base)
