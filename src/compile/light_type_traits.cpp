#include "compile/std_headers.hpp"

namespace jitune::compile {

// <cuda/std/type_traits> takes NVRTC 0.8 s to read, twenty times what a small kernel takes in all, and most kernels
// want is_same and conditional only. This has what C++17 code commonly uses; a source that needs more is compiled again
// with the full one.
const char* const kLightTypeTraits =
    R"cpp(#pragma once
          namespace std {
          using size_t = decltype(sizeof(0));
          template <class T, T v>
          struct integral_constant {
            static constexpr T value = v;
            using value_type = T;
            using type = integral_constant;
            __host__ __device__ constexpr operator T() const noexcept { return v; }
            __host__ __device__ constexpr T operator()() const noexcept { return v; }
          };
          template <bool b>
          using bool_constant = integral_constant<bool, b>;
          using true_type = bool_constant<true>;
          using false_type = bool_constant<false>;
          template <class T>
          struct type_identity {
            using type = T;
          };
          template <class T>
          using type_identity_t = typename type_identity<T>::type;
          template <bool b, class T, class F>
          struct conditional {
            using type = T;
          };
          template <class T, class F>
          struct conditional<false, T, F> {
            using type = F;
          };
          template <bool b, class T, class F>
          using conditional_t = typename conditional<b, T, F>::type;
          template <bool b, class T = void>
          struct enable_if {};
          template <class T>
          struct enable_if<true, T> {
            using type = T;
          };
          template <bool b, class T = void>
          using enable_if_t = typename enable_if<b, T>::type;
          template <class...>
          using void_t = void;
          template <class...>
          struct conjunction : true_type {};
          template <class B>
          struct conjunction<B> : B {};
          template <class B, class... R>
          struct conjunction<B, R...> : conditional_t<bool(B::value), conjunction<R...>, B> {};
          template <class...>
          struct disjunction : false_type {};
          template <class B>
          struct disjunction<B> : B {};
          template <class B, class... R>
          struct disjunction<B, R...> : conditional_t<bool(B::value), B, disjunction<R...>> {};
          template <class B>
          struct negation : bool_constant<!bool(B::value)> {};
          template <class... B>
          inline constexpr bool conjunction_v = conjunction<B...>::value;
          template <class... B>
          inline constexpr bool disjunction_v = disjunction<B...>::value;
          template <class B>
          inline constexpr bool negation_v = negation<B>::value;

#define JITUNE_TRANSFORM(name, pattern, result, ...) \
            template <class T>                                 \
            struct name {                                      \
              using type = T;                                  \
            };                                                 \
            template <__VA_ARGS__>                             \
            struct name<pattern> {                             \
              using type = result;                             \
            };                                                 \
            template <class T>                                 \
            using name##_t = typename name<T>::type;
          JITUNE_TRANSFORM(remove_const, const T, T, class T)
          JITUNE_TRANSFORM(remove_volatile, volatile T, T, class T)
          JITUNE_TRANSFORM(remove_pointer, T*, T, class T)
#undef JITUNE_TRANSFORM
          template <class T>
          struct remove_pointer<T* const> {
            using type = T;
          };
          template <class T>
          struct remove_pointer<T* volatile> {
            using type = T;
          };
          template <class T>
          struct remove_pointer<T* const volatile> {
            using type = T;
          };
          template <class T>
          struct remove_cv {
            using type = remove_const_t<remove_volatile_t<T>>;
          };
          template <class T>
          using remove_cv_t = typename remove_cv<T>::type;
          template <class T>
          struct remove_reference {
            using type = T;
          };
          template <class T>
          struct remove_reference<T&> {
            using type = T;
          };
          template <class T>
          struct remove_reference<T&&> {
            using type = T;
          };
          template <class T>
          using remove_reference_t = typename remove_reference<T>::type;
          template <class T>
          struct remove_cvref {
            using type = remove_cv_t<remove_reference_t<T>>;
          };
          template <class T>
          using remove_cvref_t = typename remove_cvref<T>::type;
          template <class T>
          struct remove_extent {
            using type = T;
          };
          template <class T>
          struct remove_extent<T[]> {
            using type = T;
          };
          template <class T, size_t n>
          struct remove_extent<T[n]> {
            using type = T;
          };
          template <class T>
          using remove_extent_t = typename remove_extent<T>::type;
          template <class T>
          struct add_const {
            using type = const T;
          };
          template <class T>
          using add_const_t = typename add_const<T>::type;
          template <class T>
          struct add_volatile {
            using type = volatile T;
          };
          template <class T>
          using add_volatile_t = typename add_volatile<T>::type;
          template <class T>
          struct add_cv {
            using type = const volatile T;
          };
          template <class T>
          using add_cv_t = typename add_cv<T>::type;
          template <class T, class = void>
          struct add_lvalue_reference {
            using type = T;
          };
          template <class T>
          struct add_lvalue_reference<T, void_t<T&>> {
            using type = T&;
          };
          template <class T>
          using add_lvalue_reference_t = typename add_lvalue_reference<T>::type;
          template <class T, class = void>
          struct add_rvalue_reference {
            using type = T;
          };
          template <class T>
          struct add_rvalue_reference<T, void_t<T&&>> {
            using type = T&&;
          };
          template <class T>
          using add_rvalue_reference_t = typename add_rvalue_reference<T>::type;
          template <class T>
          struct add_pointer {
            using type = remove_reference_t<T>*;
          };
          template <class T>
          using add_pointer_t = typename add_pointer<T>::type;
          template <class T>
          __host__ __device__ add_rvalue_reference_t<T> declval() noexcept;

#define JITUNE_TRAIT(name, ...)                \
            template <class T>                           \
            struct name : bool_constant<__VA_ARGS__> {}; \
            template <class T>                           \
            inline constexpr bool name##_v = name<T>::value;
          template <class A, class B>
          struct is_same : false_type {};
          template <class A>
          struct is_same<A, A> : true_type {};
          template <class A, class B>
          inline constexpr bool is_same_v = is_same<A, B>::value;
          template <class T, class... L>
          inline constexpr bool jitune_one_of = (is_same_v<remove_cv_t<T>, L> || ...);
          JITUNE_TRAIT(is_void, is_same_v<remove_cv_t<T>, void>)
          JITUNE_TRAIT(is_null_pointer, is_same_v<remove_cv_t<T>, decltype(nullptr)>)
          JITUNE_TRAIT(is_integral,
                       jitune_one_of<T, bool, char, signed char, unsigned char, wchar_t, char16_t, char32_t, short,
                                     unsigned short, int, unsigned, long, unsigned long, long long, unsigned long long>)
          JITUNE_TRAIT(is_floating_point, jitune_one_of<T, float, double, long double>)
          JITUNE_TRAIT(is_arithmetic, is_integral_v<T> || is_floating_point_v<T>)
          JITUNE_TRAIT(is_fundamental, is_arithmetic_v<T> || is_void_v<T> || is_null_pointer_v<T>)
          JITUNE_TRAIT(is_enum, __is_enum(T))
          JITUNE_TRAIT(is_class, __is_class(T))
          JITUNE_TRAIT(is_union, __is_union(T))
          JITUNE_TRAIT(is_empty, __is_empty(T))
          JITUNE_TRAIT(is_final, __is_final(T))
          JITUNE_TRAIT(is_polymorphic, __is_polymorphic(T))
          JITUNE_TRAIT(is_abstract, __is_abstract(T))
          JITUNE_TRAIT(is_trivial, __is_trivial(T))
          JITUNE_TRAIT(is_trivially_copyable, __is_trivially_copyable(T))
          JITUNE_TRAIT(is_standard_layout, __is_standard_layout(T))
          JITUNE_TRAIT(is_default_constructible, __is_constructible(T))
          JITUNE_TRAIT(is_const, !is_same_v<T, remove_const_t<T>>)
          JITUNE_TRAIT(is_volatile, !is_same_v<T, remove_volatile_t<T>>)
          template <class T>
          struct jitune_is_pointer : false_type {};
          template <class T>
          struct jitune_is_pointer<T*> : true_type {};
          JITUNE_TRAIT(is_pointer, jitune_is_pointer<remove_cv_t<T>>::value)
          template <class T>
          struct is_lvalue_reference : false_type {};
          template <class T>
          struct is_lvalue_reference<T&> : true_type {};
          template <class T>
          inline constexpr bool is_lvalue_reference_v = is_lvalue_reference<T>::value;
          template <class T>
          struct is_rvalue_reference : false_type {};
          template <class T>
          struct is_rvalue_reference<T&&> : true_type {};
          template <class T>
          inline constexpr bool is_rvalue_reference_v = is_rvalue_reference<T>::value;
          JITUNE_TRAIT(is_reference, is_lvalue_reference_v<T> || is_rvalue_reference_v<T>)
          template <class T>
          struct is_array : false_type {};
          template <class T>
          struct is_array<T[]> : true_type {};
          template <class T, size_t n>
          struct is_array<T[n]> : true_type {};
          template <class T>
          inline constexpr bool is_array_v = is_array<T>::value;
          JITUNE_TRAIT(is_function, !is_reference_v<T> && !is_const_v<const T>)
          template <class T, bool = is_arithmetic_v<T>>
          struct jitune_is_signed : bool_constant<(T(-1) < T(0))> {};
          template <class T>
          struct jitune_is_signed<T, false> : false_type {};
          JITUNE_TRAIT(is_signed, jitune_is_signed<remove_cv_t<T>>::value)
          JITUNE_TRAIT(is_unsigned, is_arithmetic_v<T> && !is_signed_v<T>)
          JITUNE_TRAIT(is_scalar, is_arithmetic_v<T> || is_enum_v<T> || is_pointer_v<T> || is_null_pointer_v<T>)
#undef JITUNE_TRAIT
          template <class B, class D>
          struct is_base_of : bool_constant<__is_base_of(B, D)> {};
          template <class B, class D>
          inline constexpr bool is_base_of_v = is_base_of<B, D>::value;
          template <class A, class B>
          struct is_convertible : bool_constant<__is_convertible_to(A, B)> {};
          template <class A, class B>
          inline constexpr bool is_convertible_v = is_convertible<A, B>::value;
          template <class T, class... A>
          struct is_constructible : bool_constant<__is_constructible(T, A...)> {};
          template <class T, class... A>
          inline constexpr bool is_constructible_v = is_constructible<T, A...>::value;

          template <class T>
          struct alignment_of : integral_constant<size_t, alignof(T)> {};
          template <class T>
          inline constexpr size_t alignment_of_v = alignof(T);
          template <class T>
          struct rank : integral_constant<size_t, 0> {};
          template <class T>
          struct rank<T[]> : integral_constant<size_t, rank<T>::value + 1> {};
          template <class T, size_t n>
          struct rank<T[n]> : integral_constant<size_t, rank<T>::value + 1> {};
          template <class T>
          inline constexpr size_t rank_v = rank<T>::value;
          template <class T, unsigned i = 0>
          struct extent : integral_constant<size_t, 0> {};
          template <class T, size_t n>
          struct extent<T[n], 0> : integral_constant<size_t, n> {};
          template <class T, size_t n, unsigned i>
          struct extent<T[n], i> : extent<T, i - 1> {};
          template <class T, unsigned i>
          struct extent<T[], i> : extent<T, i == 0 ? 99 : i - 1> {};
          template <class T, unsigned i = 0>
          inline constexpr size_t extent_v = extent<T, i>::value;
          template <class T>
          struct underlying_type {
            using type = __underlying_type(T);
          };
          template <class T>
          using underlying_type_t = typename underlying_type<T>::type;
          template <class T, class R = remove_reference_t<T>>
          struct decay {
            using type =
                conditional_t<is_array_v<R>, remove_extent_t<R>*,
                              typename conditional<is_function_v<R>, add_pointer<R>, remove_cv<R>>::type::type>;
          };
          template <class T>
          using decay_t = typename decay<T>::type;
          template <class... T>
          struct common_type {};
          template <class T>
          struct common_type<T> : common_type<T, T> {};
          template <class A, class B>
          struct common_type<A, B> {
            using type = decay_t<decltype(false ? declval<decay_t<A>>() : declval<decay_t<B>>())>;
          };
          template <class A, class B, class... R>
          struct common_type<A, B, R...> : common_type<typename common_type<A, B>::type, R...> {};
          template <class... T>
          using common_type_t = typename common_type<T...>::type;

          template <class T>
          struct make_unsigned;
          template <class T>
          struct make_signed;
#define JITUNE_SIGNS(s, u)  \
            template <>               \
            struct make_unsigned<s> { \
              using type = u;         \
            };                        \
            template <>               \
            struct make_unsigned<u> { \
              using type = u;         \
            };                        \
            template <>               \
            struct make_signed<s> {   \
              using type = s;         \
            };                        \
            template <>               \
            struct make_signed<u> {   \
              using type = s;         \
            };
          JITUNE_SIGNS(signed char, unsigned char)
          JITUNE_SIGNS(short, unsigned short)
          JITUNE_SIGNS(int, unsigned)
          JITUNE_SIGNS(long, unsigned long)
          JITUNE_SIGNS(long long, unsigned long long)
#undef JITUNE_SIGNS
          template <>
          struct make_unsigned<char> {
            using type = unsigned char;
          };
          template <>
          struct make_signed<char> {
            using type = signed char;
          };
          template <class T>
          using make_unsigned_t = typename make_unsigned<T>::type;
          template <class T>
          using make_signed_t = typename make_signed<T>::type;
          }  // namespace std
    )cpp";

}  // namespace jitune::compile
