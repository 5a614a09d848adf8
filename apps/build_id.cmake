# cmake -DSOURCES=DIR -DBUILD=TEXT -DFILE=FILE -P apps/build_id.cmake: writes what tells this build from others, a hash
# of the sources of the program and of how they are compiled (BUILD), where that has changed.
cmake_minimum_required(VERSION 3.25)
set(all "${BUILD}")
foreach(folder kernels engine comm data models apps)
  file(GLOB_RECURSE files LIST_DIRECTORIES false RELATIVE ${SOURCES} ${SOURCES}/${folder}/*.cc ${SOURCES}/${folder}/*.h
       ${SOURCES}/${folder}/*.cu ${SOURCES}/${folder}/*.cuh)
  foreach(file ${files})
    file(SHA256 ${SOURCES}/${file} hash)
    string(APPEND all "${file} ${hash}\n")
  endforeach()
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 12 id)
file(CONFIGURE OUTPUT ${FILE} @ONLY CONTENT
     "namespace isobar {\nextern const char kBuildId[];\nconst char kBuildId[] = \"@id@\";\n}\n")
