hb_fuzz(fuzz_plan SRCS model/fuzz_plan.cpp DEPS model base)
