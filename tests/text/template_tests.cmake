# Chat templates. render_template is the driver that the Python tests speak to.
add_executable(render_template render_template.cpp)
target_link_libraries(render_template PRIVATE halfbyte_options halfbyte::text nlohmann_json::nlohmann_json)
