# Chat templates. render_template is the driver that the Python tests speak to.
add_executable(render_template render_template.cpp)
target_link_libraries(render_template PRIVATE halfbyte_options halfbyte::text nlohmann_json::nlohmann_json)

hb_test(chat_template_test
  SRCS chat_template_test.cpp template_golden_test.cpp template_hostile_test.cpp template_text_test.cpp
  DEPS text SYSTEM_DEPS nlohmann_json::nlohmann_json fmt::fmt TIMEOUT 1200)
hb_pytest(template_parity PATHS template_parity_test.py LABELS parity TIMEOUT 600)
# memmem's interceptor marks all that is left of a text at each search, which makes a replacement quadratic; one thread runs here.
set_tests_properties(chat_template_test PROPERTIES ENVIRONMENT "TSAN_OPTIONS=intercept_memmem=0")
