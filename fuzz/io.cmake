foreach(parser safetensors safetensors_index gguf hf_config generation_config quant_config stored_linear tokenizer_config)
  hb_fuzz(fuzz_${parser} SRCS io/fuzz_${parser}.cpp DEPS io)
endforeach()
