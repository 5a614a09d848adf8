# cmake -DSOURCES=DIR -DFILE=FILE -P bench/commit.cmake: writes which commit is checked out, where that has changed.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git describe --always --dirty "--exclude=*" WORKING_DIRECTORY ${SOURCES} OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${FILE} @ONLY CONTENT
     "namespace isobar::bench {\nextern const char kCommit[];\nconst char kCommit[] = \"@commit@\";\n}\n")
