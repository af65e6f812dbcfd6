# Chat templates. render_template is the driver that the Python tests speak to.
add_executable(render_template render_template.cpp)
target_link_libraries(render_template PRIVATE halfbyte_options halfbyte::text nlohmann_json::nlohmann_json)

hb_test(chat_template_test
  SRCS chat_template_test.cpp template_golden_test.cpp template_hostile_test.cpp template_text_test.cpp
  DEPS text SYSTEM_DEPS nlohmann_json::nlohmann_json fmt::fmt)

if(HALFBYTE_PYTHON)
  add_test(NAME template_parity
    COMMAND ${HALFBYTE_PYTHON} ${CMAKE_SOURCE_DIR}/tests/support/run_pytest.py ${CMAKE_CURRENT_SOURCE_DIR}/template_parity_test.py)
  set_tests_properties(template_parity PROPERTIES LABELS parity SKIP_RETURN_CODE 77 TIMEOUT 300
    ENVIRONMENT "HALFBYTE_RENDER_TEMPLATE=$<TARGET_FILE:render_template>")
endif()
